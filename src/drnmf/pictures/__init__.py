"""What a model has learned and what it hears, drawn; and the demonstration."""
