"""Everything that turns runs into results: records, tables, timing, comparisons and pages."""
