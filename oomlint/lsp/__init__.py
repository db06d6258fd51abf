"""The language server: findings while somebody types."""
