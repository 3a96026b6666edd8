"""Pure torch modules of the Transformer: keyword arguments in, values out, no state left behind."""
