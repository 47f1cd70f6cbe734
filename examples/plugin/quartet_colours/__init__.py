"""Parts for Quartet in a package of their own, one file each."""
