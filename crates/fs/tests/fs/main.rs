//! The page cache on a drive of the tests, and file systems in images.

mod image;
mod page_cache;
