"""From recordings to a trained model: recipe, losses, backpropagation, a run's folder."""
