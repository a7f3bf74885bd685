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
    /// The image: a file or a block device; its file system is found by magic numbers
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
    /// Copy a file into the image; an existing file of that name is replaced
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
        /// Delete directories with everything in them
        #[arg(short = 'r', long)]
        recursive: bool,
        /// Paths in the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make directories
    Mkdir {
        /// Make missing parent directories too; an existing directory is no error
        #[arg(short = 'p', long)]
        parents: bool,
        /// Paths in the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },
    /// Make an empty file system
    Mkfs(FsMkfsArgs),
    /// Show the image's files in a folder, for any program to work with, until the
    /// folder is unmounted or Ctrl-C is pressed
    Mount {
        /// The folder
        folder: PathBuf,
        /// Mount without allowing changes
        #[arg(long)]
        read_only: bool,
    },
    /// Show the attributes of a file, or of the file system
    Stat {
        /// A path in the image; the file system if not given
        path: Option<OsString>,
    },
    /// Show where a file's blocks are
    Blocks {
        /// Its path in the image
        path: OsString,
    },
    /// Print the texts that are anywhere in the image, deleted files included
    Strings {
        /// The shortest text to print, in bytes
        #[arg(short = 'n', long = "bytes", default_value_t = 4, value_name = "N")]
        bytes_min: usize,
    },
}

#[derive(Args)]
pub(crate) struct FsLsArgs {
    /// Show kind and permissions, links, owner, group, bytes and time of last change
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// List the directories below too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// A path in the image
    #[arg(default_value = "/")]
    pub(crate) path: OsString,
}

/// File systems that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsKind {
    /// ext2
    Ext2,
    /// FAT12, FAT16 or FAT32, chosen by the image's length
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
    /// The kind of file system
    #[arg(value_enum)]
    pub(crate) kind: FsKind,
    /// The image's length, such as 64M; needed where there is no image yet
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// Replace an existing file system
    #[arg(long)]
    pub(crate) force: bool,
    /// ext2: the block size, 1k, 2k or 4k; FAT: the cluster size
    #[arg(short = 'b', long, value_name = "SIZE")]
    pub(crate) block_size: Option<String>,
    /// FAT: the sector size, 512 to 4k
    #[arg(long, value_name = "SIZE")]
    pub(crate) sector_size: Option<String>,
    /// ext2: the inode size in bytes, 128 or 256
    #[arg(short = 'I', long, default_value_t = 256, value_name = "BYTES")]
    pub(crate) inode_size: u32,
    /// ext2: bytes of the device for each inode
    #[arg(short = 'i', long, value_name = "SIZE")]
    pub(crate) bytes_per_inode: Option<String>,
    /// ext2: blocks reserved for root, in percent
    #[arg(short = 'm', long, default_value_t = 5, value_name = "PERCENT")]
    pub(crate) reserved: u32,
    /// The volume's name
    #[arg(short = 'L', long, default_value = "", value_name = "NAME")]
    pub(crate) label: OsString,
    /// The volume's UUID, or on FAT its serial number, as hexadecimal digits; random if
    /// not given
    #[arg(short = 'U', long, value_name = "HEX")]
    pub(crate) uuid: Option<String>,
}
