// Files are replaced completely or not at all.
#include "files/replace.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "files/folder.h"
#include "files/lock.h"
#include "files/unfinished.h"
#include "unit/folder.h"

namespace sparsewire::files::replace_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& content) { return std::as_bytes(std::span(content)); }

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777U;
}

// What write, prepare or commit throws.
template <class Work>
std::string complaint(Work&& work) {
  try {
    work();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Replacement, ShowsNothingBeforeItIsCommitted) {
  const Folder folder;
  folder.write("a", "old");
  Replacement file(folder / "a");
  file.write(bytes_of("new"));
  EXPECT_EQ(folder.read("a"), "old");
  file.prepare();
  EXPECT_EQ(folder.read("a"), "old");
  file.commit();
  EXPECT_EQ(folder.read("a"), "new");
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
}

TEST(Replacement, ThatIsNotCommittedLeavesNoTrace) {
  const Folder folder;
  folder.write("a", "old");
  { Replacement(folder / "a").write(bytes_of("new")); }
  {
    Replacement file(folder / "a");
    file.write(bytes_of("new"));
    file.prepare();
  }
  { const Replacement file(folder / "b"); }
  EXPECT_EQ(folder.read("a"), "old");
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
}

TEST(Replacement, OfSeveralFilesGoesInTheOrderOfTheCommits) {
  const Folder folder;
  Replacement first(folder / "first");
  Replacement second(folder / "second");
  first.write(bytes_of("1"));
  second.write(bytes_of("2"));
  second.prepare();
  first.commit();
  EXPECT_TRUE(fs::exists(folder / "first"));
  EXPECT_FALSE(fs::exists(folder / "second"));
  second.commit();
  EXPECT_THAT(folder.names(), UnorderedElementsAre("first", "second"));
}

TEST(Replacement, KeepsTheModeOfTheOldFile) {
  const Folder folder;
  folder.write("a", "old");
  for (const unsigned mode : {0600U, 0644U, 0755U, 0666U}) {
    ASSERT_EQ(::chmod((folder / "a").c_str(), mode), 0);
    Replacement(folder / "a").commit();
    EXPECT_EQ(mode_of(folder / "a"), mode);
  }
}

TEST(Replacement, OfNothingHasTheModeOfAnyNewFile) {
  const Folder folder;
  for (const unsigned mask : {022U, 077U, 0U}) {
    const mode_t before = ::umask(mask);
    Replacement(folder / "new").commit();
    ::umask(before);
    EXPECT_EQ(mode_of(folder / "new"), 0666U & ~mask);
    fs::remove(folder / "new");
  }
}

TEST(Replacement, FollowsLinks) {
  const Folder folder;
  fs::create_directory(folder / "sub");
  folder.write("sub/real", "old");
  fs::create_symlink("sub/middle", folder / "link");
  fs::create_symlink("real", folder / "sub/middle");
  Replacement file(folder / "link");
  file.write(bytes_of("new"));
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "sub/middle"));
  EXPECT_FALSE(fs::is_symlink(folder / "sub/real"));
  EXPECT_EQ(folder.read("sub/real"), "new");
}

TEST(Replacement, MakesWhatALinkLeadsTo) {
  const Folder folder;
  fs::create_symlink("not there yet", folder / "link");
  Replacement(folder / "link").commit();
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_regular_file(folder / "not there yet"));
}

TEST(Replacement, RefusesLinksThatGoInCircles) {
  const Folder folder;
  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  EXPECT_THAT(complaint([&] { Replacement(folder / "a").commit(); }), HasSubstr("Too many levels"));
}

TEST(Replacement, WritesAPipeAsItIs) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  Replacement file(folder / "pipe");
  file.write(bytes_of("ab"));
  file.skip(5000);
  file.commit();
  std::string got(6000, '?');
  got.resize(static_cast<std::size_t>(::read(reader, got.data(), got.size())));
  ::close(reader);
  EXPECT_EQ(got, "ab" + std::string(5000, '\0'));
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
  EXPECT_THAT(folder.names(), UnorderedElementsAre("pipe"));
}

TEST(Replacement, SaysThatADeviceIsFull) {
  const std::string message = complaint([] {
    Replacement file("/dev/full");
    file.write(bytes_of("x"));
    file.commit();
  });
  EXPECT_EQ(message, "cannot write '/dev/full': No space left on device");
}

TEST(Replacement, ThatFailsLeavesTheOldFile) {
  const Folder folder;
  folder.write("a", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = complaint([&] {
    Replacement file(folder / "a");
    for (int i = 0; i < 5; ++i) file.write(bytes_of(std::string(50000, 'x')));
    file.commit();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write '" + folder / "a" + "': File too large"));
  EXPECT_EQ(folder.read("a"), "old");
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
}

TEST(Replacement, RemovesWhatAKillLeftBehind) {
  const Folder folder;
  folder.write(".sparsewire-a.tmp", "half");
  Replacement(folder / "a").commit();
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
  const std::string longest(255, 'n');
  Replacement(folder / longest).commit();
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a", longest));
}

TEST(Replacement, LeavesThatOfALiveOneAlone) {
  const Folder folder;
  Replacement first(folder / "a");
  first.write(bytes_of("first"));
  Replacement second(folder / "a");
  second.write(bytes_of("second"));
  first.prepare();  // closed, and still its own
  Replacement third(folder / "a");
  third.write(bytes_of("third"));
  EXPECT_EQ(folder.names().size(), 3U);
  for (Replacement* const one : {&third, &first, &second}) one->commit();
  EXPECT_EQ(folder.read("a"), "second");
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
}

TEST(Replacement, LeavesWhatOnlyHasTheNameAlone) {
  const Folder folder;
  folder.write("other", "precious");
  fs::create_symlink("other", folder / ".sparsewire-a.tmp");
  fs::create_directory(folder / ".sparsewire-a.1.tmp");
  ASSERT_EQ(::mkfifo((folder / ".sparsewire-a.2.tmp").c_str(), 0600), 0);
  Replacement(folder / "a").commit();
  EXPECT_EQ(folder.read("other"), "precious");
  EXPECT_EQ(folder.names().size(), 5U);
}

TEST(Replacement, WhoseRenameFailsIsTidiedUp) {
  const Folder folder;
  {
    Replacement file(folder / "a");
    file.prepare();
    fs::create_directory(folder / "a");
    EXPECT_THAT(complaint([&] { file.commit(); }), HasSubstr("Is a directory"));
  }
  EXPECT_THAT(folder.names(), UnorderedElementsAre("a"));
}

TEST(Replacement, NamesTheFileAndTheReason) {
  const Folder folder;
  EXPECT_EQ(complaint([&] { Replacement(folder / "no/such"); }),
            "cannot write '" + folder / "no/such" + "': No such file or directory");
  EXPECT_EQ(complaint([&] { Replacement(folder / "."); }), "cannot write '" + folder / "." + "': Is a directory");
  if (::geteuid() == 0) return;  // may write everything
  folder.write("a", "old");
  ASSERT_EQ(::chmod((folder / "a").c_str(), 0444), 0);
  EXPECT_EQ(complaint([&] { Replacement(folder / "a"); }), "cannot write '" + folder / "a" + "': Permission denied");
}

TEST(Replacement, TakesPiecesOfAnySize) {
  const Folder folder;
  std::string wanted;
  Replacement file(folder / "a");
  for (const std::size_t size : {0U, 1U, 65535U, 1U, 65536U, 65537U, 3U, 200000U}) {
    const std::string piece(size, static_cast<char>('a' + wanted.size() % 26));
    file.write(bytes_of(piece));
    wanted += piece;
  }
  file.commit();
  EXPECT_EQ(folder.read("a"), wanted);
}

TEST(Replacement, SkipsZerosAnywhere) {
  const Folder folder;
  for (const std::size_t zeros : {0U, 1U, 4095U, 4096U, 70000U}) {
    SCOPED_TRACE(zeros);
    const std::string gap(zeros, '\0');
    Replacement file(folder / "a");
    file.skip(zeros);
    file.write(bytes_of("x"));
    file.skip(zeros);
    file.write(bytes_of("y"));
    file.write({});
    file.skip(zeros);
    file.commit();
    EXPECT_EQ(folder.read("a"), gap + "x" + gap + "y" + gap);
  }
}

TEST(Replacement, SkipsFarWithoutTakingDisk) {
  const Folder folder;
  Replacement file(folder / "a");
  file.write(bytes_of("x"));
  file.skip(std::uint64_t{1} << 34);
  file.commit();
  struct stat status {};
  ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, (std::int64_t{1} << 34) + 1);
  EXPECT_LT(status.st_blocks, 10000);
}

TEST(SameFile, IsFoundUnderOtherNames) {
  const Folder folder;
  fs::create_directory(folder / "sub");
  folder.write("a", "");
  folder.write("b", "");
  fs::create_symlink("a", folder / "link");
  fs::create_symlink("sub", folder / "sub2");
  fs::create_symlink("sub/new", folder / "to new");
  EXPECT_TRUE(is_same_file(folder / "a", folder / "a"));
  EXPECT_TRUE(is_same_file(folder / "a", folder / "sub/../a"));
  EXPECT_TRUE(is_same_file(folder / "link", folder / "a"));
  EXPECT_FALSE(is_same_file(folder / "a", folder / "b"));
  EXPECT_FALSE(is_same_file(folder / "a", folder / "new"));
  EXPECT_TRUE(is_same_file(folder / "sub/new", folder / "sub2/new"));
  EXPECT_TRUE(is_same_file(folder / "to new", folder / "sub/new"));
  EXPECT_FALSE(is_same_file(folder / "sub/new", folder / "new"));
  EXPECT_TRUE(is_same_file("no such file", "./no such file"));
  EXPECT_FALSE(is_same_file("/dev/null", "/dev/null")) << "it can be written twice";
}

TEST(FileLock, IsForOneAtATimeAndLeavesNothingBehind) {
  const Folder folder;
  {
    const FileLock first(folder / "a");
    EXPECT_FALSE(first.is_taken());
    EXPECT_TRUE(FileLock(folder / "a").is_taken());
    EXPECT_TRUE(FileLock(folder / "a").is_taken()) << "one that was refused does not free it";
    EXPECT_FALSE(FileLock(folder / "b").is_taken());
    fs::create_symlink("a", folder / "link");
    EXPECT_TRUE(FileLock(folder / "link").is_taken());
    fs::remove(folder / "link");
  }
  EXPECT_FALSE(FileLock(folder / "a").is_taken());
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(FileLock, StaysWithTheNameWhenTheFileIsReplaced) {
  const Folder folder;
  folder.write("a", "old");
  const FileLock lock(folder / "a");
  Replacement file(folder / "a");
  file.write(bytes_of("new"));
  file.commit();
  EXPECT_TRUE(FileLock(folder / "a").is_taken());
}

TEST(FileLock, IsNotHeldByALockFileThatAKillLeftBehind) {
  const Folder folder;
  folder.write(".sparsewire-a.lock", "");
  EXPECT_FALSE(FileLock(folder / "a").is_taken());
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(FileLock, IsMissingWhereNoFileCanBeMade) {
  const Folder folder;
  EXPECT_FALSE(FileLock(folder / "none/a").is_taken());  // whoever writes the file says what is wrong
  EXPECT_FALSE(FileLock(folder / std::string(250, 'x')).is_taken());
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(MakeFolder, MakesAllOfItAndSaysWhyNot) {
  const Folder folder;
  make_folder(folder / "a/b");
  make_folder(folder / "a/b");
  EXPECT_TRUE(fs::is_directory(folder / "a/b"));
  folder.write("file", "x");
  EXPECT_THAT(complaint([&] { make_folder(folder / "file/c"); }), HasSubstr("cannot write '" + folder / "file/c"));
}

}  // namespace
}  // namespace sparsewire::files::replace_test
