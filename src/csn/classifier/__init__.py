"""FewShotClassifier: scikit-learn's face of a trained learner."""
