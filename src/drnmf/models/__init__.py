"""The models, in one file each; `kinds` lists them."""
