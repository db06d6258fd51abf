"""What a training script will hold in memory, added up before it runs: nothing of it is executed."""
