"""Networks that read a whole text: sentence encoders, masked models, classifiers, taggers."""
