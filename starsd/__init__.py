"""StarSD: one draft model, many target models, one star of Redis streams between them."""

__version__ = "0.1.0"
