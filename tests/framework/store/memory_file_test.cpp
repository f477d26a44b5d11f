#include "framework/store/memory_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "tests/scratch_directory.h"

namespace strait::store {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(MemoryFile, OutlivesItsOwnerWhileAnotherHoldsIt) {
  std::optional<MemoryFile> file("a checkpoint");
  file->write(bytes_of("weights"));
  file->write(bytes_of(" and moments"));
  const FileSummary summary = file->seal();
  EXPECT_EQ(summary.size, 19U);
  EXPECT_EQ(summary.hash, hash_text("weights and moments"));
  const FileDescriptor other = open_sealed(descriptor_path(::getpid(), file->descriptor()));
  file.reset();
  EXPECT_EQ(read_text_file(descriptor_path(other.number()), 100), "weights and moments");
}

TEST(MemoryFile, NeverChangesOnceSealed) {
  MemoryFile file("a checkpoint");
  file.write(bytes_of("weights"));
  file.seal();
  EXPECT_THROW(file.write(bytes_of("!")), StoreError);
  EXPECT_NE(::ftruncate(file.descriptor(), 0), 0);
}

// A process names the descriptor: nothing but what it has sealed may be opened for it.
TEST(MemoryFile, OpensNothingElse) {
  MemoryFile open("still written");
  open.write(bytes_of("weights"));
  EXPECT_THROW(open_sealed(descriptor_path(open.descriptor())), StoreError);
  const ScratchDirectory directory;
  ScratchDirectory::write(directory / "secret", "on disk");
  const InputFile secret(directory / "secret");
  EXPECT_THROW(open_sealed(directory / "secret"), StoreError);
  EXPECT_THROW(open_sealed(descriptor_path(1'000'000, 3)), StoreError);
}

}  // namespace
}  // namespace strait::store
