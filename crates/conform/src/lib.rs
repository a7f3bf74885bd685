//! Holds our block layer and schedulers against traces of the real kernel
