"""VTK files: XML by our reader, other formats by VTK in a process of its own."""
