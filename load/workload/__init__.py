"""What is asked, and when: arrivals, lengths, traces, and chats of so many tokens."""
