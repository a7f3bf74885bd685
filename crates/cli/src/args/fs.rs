//! The options of `blklab fs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  blklab fs disk.img mkfs ext2 --size 64M
      a new image with an empty ext2
  blklab fs disk.img put notes.txt /notes.txt
  blklab fs disk.img ls -l /
  blklab fs disk.img blocks /notes.txt
      where on the device the file lies
  blklab fs disk.img rm /notes.txt && blklab fs disk.img strings | grep secret
      what rm leaves behind
  blklab fs disk.img mount /mnt
      over FUSE; cp, tar and editors work there, and umount ends it
  blklab fs -o utf8,codepage=932 card.img ls
      a memory card from Japan";

#[derive(Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct FsArgs {
    /// The image: a file or a block device; what it has is found by magic numbers
    pub(crate) image: PathBuf,

    /// Mount options of VFAT: codepage=N, iocharset=NAME, utf8,
    /// shortname=lower|win95|winnt|mixed, nonumtail
    #[arg(
        short = 'o',
        long = "options",
        default_value = "utf8",
        value_name = "OPTIONS"
    )]
    pub(crate) options: String,

    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

#[derive(Subcommand)]
pub(crate) enum FsCommand {
    /// List a directory
    Ls(FsLsArgs),
    /// Print files
    Cat {
        /// Paths in the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Copy a file into the image; one of that name is replaced whole
    Put {
        /// The file; - is standard input
        file: PathBuf,
        /// Its path in the image, or a directory there
        path: OsString,
    },
    /// Copy a file out of the image
    Get {
        /// Its path in the image
        path: OsString,
        /// The file; - is standard output
        file: PathBuf,
    },
    /// Delete files, or whole trees
    Rm {
        /// Directories with all that is in them
        #[arg(short = 'r', long)]
        recursive: bool,
        /// Paths in the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make directories
    Mkdir {
        /// Those on the way too; none is an error where it exists
        #[arg(short = 'p', long)]
        parents: bool,
        /// Paths in the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make an empty file system
    Mkfs(FsMkfsArgs),
    /// Show its files in a folder, for any program to work with, until the folder is
    /// unmounted or Ctrl-C
    Mount {
        /// The folder
        folder: PathBuf,
        /// Change nothing
        #[arg(long)]
        read_only: bool,
    },
    /// Tell what is known of a file, or of the file system
    Stat {
        /// A path in the image; the file system if not given
        path: Option<OsString>,
    },
    /// Tell where a file's blocks are
    Blocks {
        /// Its path in the image
        path: OsString,
    },
    /// Print the texts that are anywhere in the image, in deleted files too
    Strings {
        /// The shortest, in bytes
        #[arg(short = 'n', long = "bytes", default_value_t = 4, value_name = "N")]
        bytes_min: usize,
    },
}

#[derive(Args)]
pub(crate) struct FsLsArgs {
    /// Kind and permissions, links, owner, group, bytes and time of last change
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// Directories below too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// A path in the image
    #[arg(default_value = "/")]
    pub(crate) path: OsString,
}

/// Kinds of file systems that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsKind {
    /// ext2
    Ext2,
    /// FAT12, FAT16 or FAT32 by the image's length
    Vfat,
    /// FAT with entries of 12 bits
    Fat12,
    /// FAT with entries of 16 bits
    Fat16,
    /// FAT with entries of 28 bits
    Fat32,
}

#[derive(Args)]
pub(crate) struct FsMkfsArgs {
    /// Its kind
    #[arg(value_enum)]
    pub(crate) kind: FsKind,
    /// The image's length, such as 64M; needed where there is no image yet
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// Replace a file system that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// ext2: 1k, 2k or 4k; FAT: the cluster's length
    #[arg(short = 'b', long, value_name = "SIZE")]
    pub(crate) block_size: Option<String>,
    /// FAT: the sector's length, 512 to 4k
    #[arg(long, value_name = "SIZE")]
    pub(crate) sector_size: Option<String>,
    /// ext2: bytes of an inode, 128 or 256
    #[arg(short = 'I', long, default_value_t = 256, value_name = "BYTES")]
    pub(crate) inode_size: u32,
    /// ext2: the device's bytes for each inode
    #[arg(short = 'i', long, value_name = "SIZE")]
    pub(crate) bytes_per_inode: Option<String>,
    /// ext2: blocks for root alone, in percent
    #[arg(short = 'm', long, default_value_t = 5, value_name = "PERCENT")]
    pub(crate) reserved: u32,
    /// The volume's name
    #[arg(short = 'L', long, default_value = "", value_name = "NAME")]
    pub(crate) label: OsString,
    /// The volume's UUID, or on FAT its number: hexadecimal digits; random if not given
    #[arg(short = 'U', long, value_name = "HEX")]
    pub(crate) uuid: Option<String>,
}
