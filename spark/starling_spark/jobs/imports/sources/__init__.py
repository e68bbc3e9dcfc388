"""What imports read: files, databases and Iceberg tables."""
