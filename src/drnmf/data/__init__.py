"""Training and test data: folders, manifests, ready pairs or CHiME2, and one `Dataset` behind them."""
