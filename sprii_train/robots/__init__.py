"""What is learned of recorded robots: batches and measures."""
