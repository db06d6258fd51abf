"""The server of jobs: it forks them, confines them and hands their answers back."""
