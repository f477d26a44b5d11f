#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/safetensors_writer.h"
#include "tests/framework/store/expect_store_error.h"
#include "tests/scratch_directory.h"

namespace strait::tensors {
namespace {

constexpr std::array<at::ScalarType, 10> kTypes{at::kDouble, at::kFloat, at::kHalf,  at::kBFloat16,
                                                at::kLong,   at::kInt,   at::kShort, at::kChar,
                                                at::kByte,   at::kBool};

std::vector<NamedTensor> one_of_each_type() {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : kTypes) {
    tensors.push_back({std::string("t.") + at::toString(type),
                       at::arange(6).remainder(2 + tensors.size()).reshape({2, 3}).to(type)});
  }
  return tensors;
}

TEST(Safetensors, ReadsBackEveryElementTypeBitForBit) {
  const ScratchDirectory folder;
  const std::vector<NamedTensor> tensors = one_of_each_type();
  const store::FileSummary summary =
      write_safetensors(folder / "w", tensors, {{"origin", "a test"}});
  EXPECT_EQ(summary, store::hash_file(folder / "w"));
  const SafetensorsReader reader(folder / "w");
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.metadata().at("origin"), "a test");
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const NamedTensor& named : tensors) {
    const at::Tensor back = reader.read(named.name);
    EXPECT_EQ(back.scalar_type(), named.tensor.scalar_type());
    EXPECT_TRUE(at::equal(back, named.tensor)) << named.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back.data_ptr()) % 64, 0U);
  }
}

TEST(Safetensors, WritesViewsScalarsAndEmptyTensorsAsTheirContent) {
  const ScratchDirectory folder;
  const at::Tensor table = at::arange(12, at::kFloat).reshape({3, 4});
  const std::vector<NamedTensor> tensors{{"turned", table.t()},
                                         {"column", table.select(1, 2)},
                                         {"scalar", at::scalar_tensor(7.5)},
                                         {"empty", at::empty({0, 5})}};
  write_safetensors(folder / "w", tensors);
  const SafetensorsReader reader(folder / "w");
  for (const NamedTensor& named : tensors) {
    EXPECT_TRUE(at::equal(reader.read(named.name), named.tensor)) << named.name;
  }
}

TEST(Safetensors, BytesDoNotDependOnTheOrderOfTheTensors) {
  const ScratchDirectory folder;
  std::vector<NamedTensor> tensors = one_of_each_type();
  const store::FileSummary first = write_safetensors(folder / "a", tensors);
  std::mt19937_64 random(3);
  std::shuffle(tensors.begin(), tensors.end(), random);
  EXPECT_EQ(write_safetensors(folder / "b", tensors), first);
}

TEST(Safetensors, RefusesToWriteANameTwiceOrATypeThatTheFormatLacks) {
  const ScratchDirectory folder;
  const at::Tensor tensor = at::ones({2});
  EXPECT_THROW(
      write_safetensors(folder / "w", std::vector<NamedTensor>{{"a", tensor}, {"a", tensor}}),
      std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "w", std::vector<NamedTensor>{{"__metadata__", tensor}}),
               std::invalid_argument);
  EXPECT_THROW(write_safetensors(folder / "w",
                                 std::vector<NamedTensor>{{"a", tensor.to(at::kComplexFloat)}}),
               std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(folder / "w"));
}

TEST(Safetensors, RefusesAFileOfEveryOtherLength) {
  const ScratchDirectory folder;
  write_safetensors(folder / "w", std::vector<NamedTensor>{{"w", at::ones({3})}});
  const std::string whole = ScratchDirectory::read(folder / "w");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ScratchDirectory::write(folder / "cut", whole.substr(0, size));
    store::expect_store_error(store::StoreError::Kind::bad_input, {"cut"},
                              [&] { SafetensorsReader reader(folder / "cut"); });
  }
  ScratchDirectory::write(folder / "long", whole + "x");
  store::expect_store_error(store::StoreError::Kind::bad_input, {"long", "13 bytes of data"},
                            [&] { SafetensorsReader reader(folder / "long"); });
}

TEST(Safetensors, RefusesWrongHeaderLength) {
  const ScratchDirectory folder;
  ScratchDirectory::write(folder / "huge", std::string(8, '\xff') + "{}");
  store::expect_store_error(store::StoreError::Kind::bad_input, {"huge", "at most 100000000"},
                            [&] { SafetensorsReader reader(folder / "huge"); });
  ScratchDirectory::write(folder / "over", std::string("\x09\0\0\0\0\0\0\0{}", 10));
  store::expect_store_error(store::StoreError::Kind::bad_input,
                            {"over", "claims 9 bytes", "only 2"},
                            [&] { SafetensorsReader reader(folder / "over"); });
}

TEST(Safetensors, RefusesABoolThatIsNeitherTrueNorFalse) {
  const ScratchDirectory folder;
  write_safetensors(folder / "w", std::vector<NamedTensor>{{"flag", at::ones({1}, at::kBool)}});
  std::string bytes = ScratchDirectory::read(folder / "w");
  bytes.back() = 2;
  ScratchDirectory::write(folder / "w", bytes);
  store::expect_store_error(store::StoreError::Kind::bad_input, {"flag", "BOOL"},
                            [&] { SafetensorsReader(folder / "w").read("flag"); });
}

TEST(Safetensors, NamesTheFileAndTheTensorThatIsNotThere) {
  const ScratchDirectory folder;
  write_safetensors(folder / "w", std::vector<NamedTensor>{{"a", at::ones({1})}});
  const SafetensorsReader reader(folder / "w");
  EXPECT_EQ(reader.find("b"), nullptr);
  store::expect_store_error(store::StoreError::Kind::bad_input, {(folder / "w").string(), "\"b\""},
                            [&] { reader.read("b"); });
}

// Exit status of the program, started without a shell.
int run_program(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

constexpr const char* kPythonProgram = R"(
import sys
try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError:
    sys.exit(77)
folder = sys.argv[1]
types = {"Double": torch.float64, "Float": torch.float32, "Half": torch.float16,
         "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32,
         "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool}
want = {f"t.{name}": torch.arange(6).remainder(2 + i).reshape(2, 3).to(dtype)
        for i, (name, dtype) in enumerate(types.items())}
ours = load_file(folder + "/ours")
assert ours.keys() == want.keys(), ours.keys()
for name, tensor in want.items():
    assert ours[name].dtype == tensor.dtype and torch.equal(ours[name], tensor), name
with safe_open(folder + "/ours", "pt") as file:
    assert file.metadata() == {"format": "pt", "origin": "a test"}, file.metadata()
save_file(want, folder + "/theirs", metadata={"format": "pt"})
)";

TEST(Safetensors, AgreesWithThePythonPackageInBothDirections) {
  const char* chosen = std::getenv("STRAIT_PYTHON");
  const std::string python = chosen != nullptr ? chosen : ".venv/bin/python";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << python << " is not there";
  const ScratchDirectory folder;
  const std::vector<NamedTensor> tensors = one_of_each_type();
  write_safetensors(folder / "ours", tensors, {{"origin", "a test"}});
  const int status = run_program({python, "-c", kPythonProgram, folder.path().string()});
  if (status == 77) GTEST_SKIP() << python << " has no torch or no safetensors";
  ASSERT_EQ(status, 0);
  const SafetensorsReader theirs(folder / "theirs");
  ASSERT_EQ(theirs.tensors().size(), tensors.size());
  for (const NamedTensor& named : tensors) {
    EXPECT_TRUE(at::equal(theirs.read(named.name), named.tensor)) << named.name;
    EXPECT_EQ(theirs.read(named.name).scalar_type(), named.tensor.scalar_type());
  }
}

}  // namespace
}  // namespace strait::tensors
