"""What every command shares: settings, amounts, output, and the adapters behind the ports."""
