#include "launcher/transfer/chunk_source.h"

#include <gtest/gtest.h>

#include "tests/scratch_directory.h"

namespace strait::transfer {
namespace {

TEST(ChunkSource, LacksChunkOfModifiedOrRemovedFile) {
  const ScratchDirectory directory;
  const auto path = directory / "file";
  ScratchDirectory::write(path, "as it was");
  const ChunkTable table = read_chunk_table(path);
  const ChunkSource::Offer offer{table, path, ChunkSet::all(1), nullptr};
  ChunkSource source;
  source.offer(offer);
  EXPECT_TRUE(source.read(table.id(), 0));
  ScratchDirectory::write(path, "as it is.");
  EXPECT_EQ(source.read(table.id(), 0), std::nullopt);
  source.offer(offer);
  std::filesystem::remove(path);
  EXPECT_EQ(source.read(table.id(), 0), std::nullopt);
}

}  // namespace
}  // namespace strait::transfer
