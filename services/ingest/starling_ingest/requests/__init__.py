"""From one HTTP request to items and validation errors: headers, bounded decompression, JSON and Protocol Buffers. No broker."""
