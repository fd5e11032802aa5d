"""Everything that learns, behind one interface: fit, save, load, predict."""
