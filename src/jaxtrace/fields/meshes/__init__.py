"""Meshes of cells: their shapes, the mesh as files describe it, its simplices and how they are searched."""
