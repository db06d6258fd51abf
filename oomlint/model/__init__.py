"""What training code means: names, values with their story, the project around a file."""
