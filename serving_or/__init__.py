"Operations research for serving AI models."

__version__ = "0.1.0"
