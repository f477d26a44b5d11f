#include "framework/store/memory_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "tests/scratch_directory.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

fs::path random_path() {
  return MemoryDirectory::path_of("test-" + std::to_string(std::random_device()()));
}

TEST(MemoryDirectory, EndsWithItsObject) {
  const fs::path path = random_path();
  std::optional<MemoryDirectory> directory(path);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  EXPECT_TRUE(MemoryDirectory::contains(path / "file"));
  EXPECT_FALSE(MemoryDirectory::contains(fs::temp_directory_path() / "file"));
  fs::create_directory(checkpoint_directory(path, Step{1}));
  directory.reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(MemoryDirectory, OfKilledProcessIsRemovedByTheNextOne) {
  const fs::path path = random_path();
  const pid_t child = ::fork();
  if (child == 0) {
    const MemoryDirectory directory(path);
    ::_exit(0);  // no destructor runs
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(fs::exists(path));
  const MemoryDirectory other(random_path());
  EXPECT_FALSE(fs::exists(path));
}

TEST(MemoryDirectory, OfLivingProcessStays) {
  const fs::path path = random_path();
  const MemoryDirectory directory(path);
  ScratchDirectory::write(path / "file", "weights");
  EXPECT_THROW(MemoryDirectory{path}, StoreError);
  EXPECT_EQ(ScratchDirectory::read(path / "file"), "weights");
}

}  // namespace
}  // namespace strait::store
