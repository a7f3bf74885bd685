//! Servers and their clients: NBD held against a model, and vhost-user.

mod model;
mod vhost_user;
