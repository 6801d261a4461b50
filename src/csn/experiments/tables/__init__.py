"""The paper's tables: what is planned, how long it trains, and the pages made of its results."""
