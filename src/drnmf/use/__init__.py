"""Using a model: streams, files, folders, live sound, scores, export."""
