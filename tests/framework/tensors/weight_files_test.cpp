#include "framework/tensors/weight_files.h"

#include <ATen/ATen.h>

#include "framework/tensors/safetensors_writer.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/scratch_directory.h"

namespace strait::tensors {
namespace {

void write_one(const std::filesystem::path& path, const std::string& name, float value) {
  write_safetensors(path, std::vector<NamedTensor>{{name, at::full({2}, value)}});
}

void write_index(const ScratchDirectory& folder, const std::string& weight_map) {
  ScratchDirectory::write(folder / "model.safetensors.index.json",
                          R"({"weight_map":)" + weight_map + "}");
}

TEST(WeightFiles, ReadsASingleFile) {
  const ScratchDirectory folder;
  write_one(folder / "model.safetensors", "wte.weight", 3);
  const WeightFiles weights(folder.path());
  ASSERT_EQ(weights.tensors().size(), 1U);
  EXPECT_EQ(weights.tensors()[0].file, folder / "model.safetensors");
  EXPECT_TRUE(at::equal(weights.read("wte.weight"), at::full({2}, 3.0F)));
  EXPECT_EQ(weights.find("ln_f.weight"), nullptr);
  store::expect_store_error(store::StoreError::Kind::bad_input, {"ln_f.weight"},
                            [&] { weights.read("ln_f.weight"); });
}

TEST(WeightFiles, ReadsShardsThroughTheIndexInTheOrderOfNames) {
  const ScratchDirectory folder;
  write_one(folder / "one.safetensors", "z", 1);
  write_one(folder / "two.safetensors", "a", 2);
  write_index(folder, R"({"z":"one.safetensors","a":"two.safetensors"})");
  const WeightFiles weights(folder.path());
  ASSERT_EQ(weights.tensors().size(), 2U);
  EXPECT_EQ(weights.tensors()[0].info.name, "a");
  EXPECT_EQ(weights.find("z")->file, folder / "one.safetensors");
  EXPECT_TRUE(at::equal(weights.read("z"), at::full({2}, 1.0F)));
  EXPECT_TRUE(at::equal(weights.read("a"), at::full({2}, 2.0F)));
}

TEST(WeightFiles, RefusesIndexThatLeavesTheDirectoryOrIsWrong) {
  const ScratchDirectory folder;
  write_one(folder / "one.safetensors", "z", 1);
  write_one(folder / "copy.safetensors", "z", 1);
  const auto refused = [&](const std::string& weight_map, const std::vector<std::string>& words) {
    write_index(folder, weight_map);
    store::expect_store_error(store::StoreError::Kind::bad_input, words,
                              [&] { WeightFiles weights(folder.path()); });
  };
  refused(R"({"z":"../one.safetensors"})", {"../one.safetensors", "inside the directory"});
  refused(R"({"z":"sub/../../one.safetensors"})", {"inside the directory"});
  refused(R"({"z":")" + (folder / "one.safetensors").string() + "\"}", {"inside the directory"});
  refused(R"({"z":""})", {"inside the directory"});
  refused(R"({"z":"gone.safetensors"})", {"gone.safetensors", "is missing"});
  refused(R"({"y":"one.safetensors"})", {"does not hold", "\"y\""});
  refused(R"({"z":"one.safetensors","y":"copy.safetensors"})", {"\"z\" is in"});
  refused(R"({"z":1})", {"\"z\"", "not a name"});
  refused("{}", {"weight_map"});
  refused("[]", {"weight_map"});
  refused("{", {"not valid"});
}

TEST(WeightFiles, NamesFilesThatWereNotFetched) {
  const ScratchDirectory scratch;
  write_index(scratch, R"({"x":"one.safetensors"})");
  for (const char* name :
       {"one.safetensors", "model.safetensors.index.json", "model.safetensors"}) {
    std::filesystem::remove(scratch / name);
    std::filesystem::create_symlink("../blobs/12ab", scratch / name);
    store::expect_store_error(store::StoreError::Kind::bad_input,
                              {name, "is a link to ../blobs/12ab"},
                              [&] { WeightFiles weights(scratch.path()); });
  }
  std::filesystem::remove(scratch / "model.safetensors.index.json");
  std::filesystem::remove(scratch / "model.safetensors");
  ScratchDirectory::write(scratch / "model.safetensors",
                          "version https://git-lfs.github.com/spec/v1\noid sha256:12ab\n");
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"model.safetensors", "a pointer of Git LFS", "git lfs pull"},
                            [&] { WeightFiles weights(scratch.path()); });
}

TEST(WeightFiles, SaysWhatToDoWithADirectoryWithoutThem) {
  const ScratchDirectory folder;
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"model.safetensors", "put the model's files back"},
                            [&] { WeightFiles weights(folder.path()); });
  ScratchDirectory::write(folder / "pytorch_model.bin", "");
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"pytorch_model.bin", "save_pretrained"},
                            [&] { WeightFiles weights(folder.path()); });
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"gone is missing", "put its files"},
                            [&] { WeightFiles weights(folder / "gone"); });
}

}  // namespace
}  // namespace strait::tensors
