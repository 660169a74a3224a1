"""Training and test data: four ways in, one `Dataset` behind them.

Folders of speech, noise and rooms (`Pool.from_folders`), a manifest (`read_manifest`), folders of ready pairs
(`read_pairs`) and the CHiME2-WSJ0 corpus (`read_chime2`); every tenth utterance of a list is `items[::10]`.
"""
