//! What stands between a request queue and a drive
