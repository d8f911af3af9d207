"""Several processes: who this one is, how they meet, how one notices that another is lost, and how a process ends."""
