"""Small applications that use nothing but the public API: each is a pipeline to read, copy and run."""
