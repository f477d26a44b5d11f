#include "framework/store/verify_checkpoint.h"

#include <algorithm>
#include <random>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/safetensors_header.h"
#include "framework/store/tensor_hashes.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/framework/store/system_faults.h"
#include "tests/scratch_directory.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

// Of two stages: weights, optimizer state and the hashes of both.
class SmallCheckpoint {
 public:
  explicit SmallCheckpoint(bool with_hashes = true)
      : path_(checkpoint_directory(run_.path(), Step{7})) {
    make_directory(path_);
    Manifest manifest;
    manifest.step = Step{7};
    std::mt19937 random(1);
    for (const std::int64_t stage : {0, 1}) {
      TensorHashes hashes;
      for (const std::string& name : {weights_name(stage, 0), shard_name(stage, 0)}) {
        manifest.files.push_back(write(name, stage, random, hashes));
      }
      if (with_hashes) {
        const FileSummary file = replace_file(path_ / hashes_name(stage, 0), hashes.format());
        manifest.files.push_back({hashes_name(stage, 0), file.size, file.hash});
      }
      for (auto& file : hashes.files) tensors_.files.push_back(std::move(file));
    }
    commit_checkpoint(path_, manifest);
    for (const ShardFile& file : manifest.files)
      contents_[file.name] = ScratchDirectory::read(path_ / file.name);
    contents_["manifest.json"] = ScratchDirectory::read(path_ / "manifest.json");
  }

  const fs::path& path() const { return path_; }
  const std::map<std::string, std::string>& contents() const { return contents_; }
  void put(const std::string& name, const std::string& bytes) const {
    ScratchDirectory::write(path_ / name, bytes);
  }
  // The tensors that have bytes in [first, last) of a file.
  std::vector<std::string> tensors_in(const std::string& file, std::size_t first,
                                      std::size_t last) const {
    std::vector<std::string> names;
    for (const auto& [name, tensors] : tensors_.files) {
      if (name != file) continue;
      for (const TensorHash& tensor : tensors) {
        if (tensor.begin < last && first < tensor.end) names.push_back(tensor.name);
      }
    }
    return names;
  }

 private:
  ShardFile write(const std::string& name, std::int64_t stage, std::mt19937& random,
                  TensorHashes& hashes) const {
    SafetensorsHeader header;
    std::string data;
    for (const char* layer : {"norm", "up", "down"}) {
      const std::size_t bytes = 4 * (8 + random() % 24);
      header.tensors.push_back({layer + std::to_string(stage),
                                Dtype::f32,
                                {static_cast<std::int64_t>(bytes / 4)},
                                data.size(),
                                data.size() + bytes});
      for (std::size_t i = 0; i < bytes; ++i) data += static_cast<char>(random());
    }
    const std::string text = header.format();
    std::vector<TensorHash> tensors;
    for (const TensorInfo& info : header.tensors) {
      tensors.push_back({info.name, text.size() + info.begin, text.size() + info.end,
                         hash_text(data.substr(info.begin, info.bytes()))});
    }
    hashes.files.emplace_back(name, tensors);
    const FileSummary file = replace_file(path_ / name, text + data);
    return {name, file.size, file.hash};
  }

  const ScratchDirectory run_;
  const fs::path path_;
  std::map<std::string, std::string> contents_;
  TensorHashes tensors_;
};

// The tensors of this file that are said to be damaged; nullopt: nothing is said of it.
std::optional<std::vector<std::string>> named(const Verification& found, const std::string& file) {
  std::optional<std::vector<std::string>> tensors;
  for (const Damage& damage : found.damage) {
    if (damage.file != file) continue;
    if (!tensors) tensors.emplace();
    EXPECT_THAT(damage.sentence, testing::HasSubstr(file));
    EXPECT_THAT(damage.sentence, testing::HasSubstr(damage.tensor));
    if (!damage.tensor.empty()) tensors->push_back(damage.tensor);
  }
  return tensors;
}

TEST(VerifyCheckpoint, FindsNothingInIntactOne) {
  const SmallCheckpoint checkpoint;
  const Verification found = verify_checkpoint(checkpoint.path());
  EXPECT_THAT(found.damage, testing::IsEmpty());
  EXPECT_THAT(found.elsewhere, testing::IsEmpty());
  std::uint64_t bytes = 0;
  for (const auto& [name, content] : checkpoint.contents()) bytes += content.size();
  EXPECT_EQ(found.bytes, bytes - checkpoint.contents().at("manifest.json").size());
}

// The bytes of one file after a random damage, and the range that it touched.
struct Damaged {
  std::string bytes;
  std::size_t first = 0;
  std::size_t last = 0;
};

Damaged damage(const std::string& good, std::mt19937_64& random) {
  Damaged bad{good, random() % good.size(), good.size()};
  switch (random() % 4) {
    case 0:  // cut
      bad.bytes.resize(bad.first);
      break;
    case 1:  // extended
      bad.bytes += std::string(1 + random() % 64, static_cast<char>(random()));
      bad.first = good.size();
      break;
    case 2: {  // a run of zeros
      bad.last = std::min(good.size(), bad.first + 1 + random() % 64);
      std::fill(bad.bytes.begin() + static_cast<std::ptrdiff_t>(bad.first),
                bad.bytes.begin() + static_cast<std::ptrdiff_t>(bad.last), '\0');
      break;
    }
    default:  // one bit
      bad.last = bad.first + 1;
      bad.bytes[bad.first] = static_cast<char>(bad.bytes[bad.first] ^ (1 << random() % 8));
  }
  // Only what differs was touched.
  while (bad.first < bad.last && bad.last <= bad.bytes.size() &&
         bad.bytes[bad.first] == good[bad.first]) {
    ++bad.first;
  }
  return bad;
}

// Damages all of these files at once, `rounds` times in different ways; returns the number of
// damages.
int damage_together(const SmallCheckpoint& checkpoint, const std::vector<std::string>& files,
                    int rounds, std::mt19937_64& random) {
  int damages = 0;
  for (int round = 0; round < rounds; ++round) {
    std::map<std::string, Damaged> bad;
    for (const std::string& file : files) {
      const std::string& good = checkpoint.contents().at(file);
      do {
        bad[file] = damage(good, random);
      } while (bad[file].bytes == good);  // the zeros were there
      checkpoint.put(file, bad[file].bytes);
    }
    const Verification found = verify_checkpoint(checkpoint.path());
    for (const auto& [file, one] : bad) {
      SCOPED_TRACE(testing::Message() << file << " from byte " << one.first);
      ++damages;
      const auto expected = checkpoint.tensors_in(file, one.first, one.last);
      const auto got = named(found, file);
      EXPECT_TRUE(got.has_value());
      if (!got) return damages;
      // Of a run of zeros, tensors whose own zeros it met are intact.
      for (const std::string& tensor : *got) EXPECT_THAT(expected, testing::Contains(tensor));
      EXPECT_EQ(got->empty(), expected.empty());
      if (one.last == one.first + 1) {
        EXPECT_EQ(*got, expected);
      }
    }
  }
  for (const std::string& file : files) checkpoint.put(file, checkpoint.contents().at(file));
  EXPECT_THAT(verify_checkpoint(checkpoint.path()).damage, testing::IsEmpty());
  return damages;
}

TEST(VerifyCheckpoint, NamesFileAndTensorOfTenThousandFlipsCutsAndZeroings) {
  const SmallCheckpoint checkpoint;
  const std::uint64_t seed = 10;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const int damages =
      damage_together(checkpoint,
                      {weights_name(0, 0), shard_name(0, 0), weights_name(1, 0), shard_name(1, 0)},
                      2'350, random) +
      damage_together(checkpoint, {hashes_name(0, 0), hashes_name(1, 0)}, 150, random) +
      damage_together(checkpoint, {"manifest.json"}, 300, random);
  EXPECT_EQ(damages, 10'000);
}

TEST(VerifyCheckpoint, NamesBothOfSwappedFilesAndThoseThatAreGone) {
  const SmallCheckpoint checkpoint;
  for (const auto& [one, content] : checkpoint.contents()) {
    for (const auto& [other, others] : checkpoint.contents()) {
      if (one >= other || one == "manifest.json" || other == "manifest.json") continue;
      checkpoint.put(one, others);
      checkpoint.put(other, content);
      const Verification found = verify_checkpoint(checkpoint.path());
      ASSERT_EQ(found.damage.size(), 2U);
      for (const Damage& damage : found.damage) {
        EXPECT_THAT(damage.sentence, testing::HasSubstr(one));
        EXPECT_THAT(damage.sentence, testing::HasSubstr(other));
        EXPECT_THAT(damage.sentence, testing::HasSubstr("mixed up"));
      }
      checkpoint.put(one, content);
      checkpoint.put(other, others);
    }
    if (one == "manifest.json") continue;
    fs::remove(checkpoint.path() / one);
    const Verification found = verify_checkpoint(checkpoint.path());
    ASSERT_EQ(found.damage.size(), 1U);
    EXPECT_EQ(found.damage[0].file, one);
    fs::create_directory(checkpoint.path() / one);
    EXPECT_EQ(verify_checkpoint(checkpoint.path()).damage.size(), 1U);
    fs::remove(checkpoint.path() / one);
    checkpoint.put(one, content);
  }
}

TEST(VerifyCheckpoint, NamesFilesOnlyWhereAFormerReleaseWroteNoHashes) {
  const SmallCheckpoint checkpoint(false);
  const std::string file = weights_name(1, 0);
  std::string bytes = checkpoint.contents().at(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  checkpoint.put(file, bytes);
  const Verification found = verify_checkpoint(checkpoint.path());
  ASSERT_EQ(found.damage.size(), 1U);
  EXPECT_EQ(found.damage[0].file, file);
  EXPECT_THAT(found.damage[0].sentence, testing::HasSubstr("no hashes"));
}

TEST(VerifyCheckpoint, DoesNotMissWhatMayLieOnHosts) {
  const SmallCheckpoint checkpoint;
  fs::remove(checkpoint.path() / shard_name(0, 0));
  fs::remove(checkpoint.path() / hashes_name(0, 0));
  EXPECT_EQ(verify_checkpoint(checkpoint.path()).damage.size(), 2U);
  const Verification found = verify_checkpoint(checkpoint.path(), Part::weights);
  EXPECT_THAT(found.damage, testing::IsEmpty());
  EXPECT_THAT(found.elsewhere, testing::ElementsAre(shard_name(0, 0), hashes_name(0, 0)));
  // What is here is compared all the same.
  checkpoint.put(shard_name(1, 0), "damaged");
  EXPECT_FALSE(verify_checkpoint(checkpoint.path(), Part::weights).damage.empty());
}

TEST(VerifyCheckpoint, DoesNotCallUnreadableDamaged) {
  const SmallCheckpoint checkpoint;
  for (int call = 0;; ++call) {
    ASSERT_LT(call, 100);
    const SystemFault fault{.call = SystemCall::pread, .after = call, .error = EIO, .once = true};
    bool threw = false;
    const int calls = with_fault(fault, [&] {
      try {
        EXPECT_THAT(verify_checkpoint(checkpoint.path()).damage, testing::IsEmpty());
      } catch (const StoreError& error) {
        threw = true;
        EXPECT_EQ(error.kind(), StoreError::Kind::storage_io) << error.what();
      }
    });
    EXPECT_EQ(threw, call < calls);
    if (calls <= call) break;
  }
}

TEST(TensorHashes, ReadBackEqualAndRefuseOtherTexts) {
  const TensorHashes hashes{{{"b.safetensors", {{"t", 8, 16, "ab"}}}, {"a.safetensors", {}}}};
  TensorHashes read = TensorHashes::parse(hashes.format(), "x");
  std::ranges::sort(read.files, {}, [](const auto& file) { return file.first; });
  EXPECT_EQ(read.files[1], hashes.files[0]);
  EXPECT_EQ(read.files[0], hashes.files[1]);
  for (const char* text :
       {"", "[]", "{\"a\": 1}", "{\"a\": [[\"t\", 1, 2]]}", "{\"a\": [[\"t\", 2, 1, \"h\"]]}",
        "{\"a\": [[1, 1, 2, \"h\"]]}", "{\"a\": [[\"t\", -1, 2, \"h\"]]}"}) {
    expect_store_error(StoreError::Kind::corrupt, {"x"}, [&] { TensorHashes::parse(text, "x"); });
  }
}

}  // namespace
}  // namespace strait::store
