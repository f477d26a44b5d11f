#include "framework/store/safetensors_header.h"

#include <random>

#include "tests/framework/store/expect_store_error.h"

namespace strait::store {
namespace {

// A header of one tensor with these fields.
std::string header_of(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

void expect_refused(const std::string& text, std::uint64_t data_bytes,
                    const std::vector<std::string>& words) {
  SCOPED_TRACE(text.substr(0, 200));
  std::vector<std::string> all = words;
  all.emplace_back("weights.safetensors: ");
  expect_store_error(StoreError::Kind::bad_input, all,
                     [&] { SafetensorsHeader::parse(text, data_bytes, "weights.safetensors"); });
}

TEST(SafetensorsHeader, ReadsWhatTheFormatAllows) {
  const std::string text =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"("empty":{"dtype":"I8","shape":[4,0],"data_offsets":[20,20]}}   )";
  const auto header = SafetensorsHeader::parse(text, 20, "f");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0], (TensorInfo{"scalar", Dtype::f64, {}, 0, 8}));
  EXPECT_EQ(header.tensors[1], (TensorInfo{"b", Dtype::bf16, {2, 3}, 8, 20}));
  EXPECT_EQ(header.tensors[2], (TensorInfo{"empty", Dtype::i8, {4, 0}, 20, 20}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_TRUE(SafetensorsHeader::parse("{}", 0, "f").tensors.empty());
}

TEST(SafetensorsHeader, RefusesTextThatIsNoHeader) {
  expect_refused("", 0, {"not a JSON object"});
  expect_refused(" {}", 0, {"not a JSON object"});
  expect_refused("[]", 0, {"not a JSON object"});
  expect_refused("{", 0, {"not valid", "column 2"});
  expect_refused("{}{}", 0, {"not valid"});
  expect_refused(R"({"w":{"dtype":"F32","dtype":"F32"}})", 0, {"\"dtype\" appears twice"});
  expect_refused("{\"\xff\":1}", 0, {"not valid"});
  expect_refused(R"({"w":[[[[[[1]]]]]]})", 0, {"nested deeper than 4"});
  expect_refused(R"({"__metadata__":{"a":1}})", 0, {"__metadata__"});
  expect_refused(R"({"__metadata__":"a"})", 0, {"__metadata__"});
}

TEST(SafetensorsHeader, RefusesADuplicateName) {
  const std::string entry = R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused("{" + entry + "," + entry + "}", 1, {"\"w\" appears twice"});
}

TEST(SafetensorsHeader, RefusesLyingShapesAndTypes) {
  expect_refused(header_of("F8_E4M3", "[1]", "[0,1]"), 1, {"\"w\"", "F8_E4M3", "none of"});
  expect_refused(header_of("F32", "[1.0]", "[0,4]"), 4, {"\"w\"", "shape"});
  expect_refused(header_of("F32", "[-1]", "[0,4]"), 4, {"\"w\"", "shape"});
  expect_refused(header_of("F32", "\"1\"", "[0,4]"), 4, {"\"w\"", "shape"});
  expect_refused(header_of("F32", "[18446744073709551616]", "[0,4]"), 4, {"shape"});
  expect_refused(header_of("F32", "[2]", "[0,4]"), 4, {"needs 8 bytes", "4 are given"});
  expect_refused(header_of("F32", "[4294967296,4294967296]", "[0,0]"), 0, {"can be counted"});
  expect_refused(header_of("F32", "[4611686018427387904,4]", "[0,0]"), 0, {"can be counted"});
  expect_refused(header_of("F32", "[0,4611686018427387904]", "[0,0]"), 0, {"can be counted"});
  expect_refused(header_of("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, {"9 dimensions", "at most 8"});
  expect_refused(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, {"\"dtype\" is missing"});
  expect_refused(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"\"shape\" is missing"});
  expect_refused(R"({"w":{"dtype":"U8","shape":[1]}})", 1, {"\"data_offsets\" is missing"});
  expect_refused(R"({"w":7})", 0, {"not an object"});
  expect_refused(
      "{\"" + std::string(513, 'n') + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
      {"513 bytes", "at most 512"});
}

TEST(SafetensorsHeader, RefusesOffsetsThatDoNotCoverTheDataExactly) {
  expect_refused(header_of("U8", "[4]", "[0,4]"), 3, {"do not lie inside"});
  expect_refused(header_of("U8", "[4]", "[4,0]"), 4, {"do not lie inside"});
  expect_refused(header_of("U8", "[4]", "[0,4,8]"), 4, {"not a pair"});
  expect_refused(header_of("U8", "[4]", "[0,4]"), 5, {"have 4 bytes", "5 bytes of data"});
  expect_refused(header_of("U8", "[4]", "[1,5]"), 5, {"overlap or leave a hole"});
  expect_refused("{}", 1, {"1 bytes of data"});
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(SafetensorsHeader::parse(two("[4,8]", "[0,4]"), 8, "f").tensors[0].name, "b");
  expect_refused(two("[0,4]", "[2,6]"), 6, {"overlap or leave a hole", "\"b\""});
  expect_refused(two("[0,4]", "[0,4]"), 4, {"overlap or leave a hole", "\"b\""});
  expect_refused(two("[0,4]", "[5,9]"), 9, {"overlap or leave a hole", "\"b\""});
}

TEST(SafetensorsHeader, RefusesMoreTensorsThanAllowed) {
  std::string text = "{";
  for (std::size_t i = 0; i <= SafetensorsHeader::kMaximumTensors + 1; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{}";
  }
  expect_refused(text + "}", 0, {"at most 100000"});
}

SafetensorsHeader random_header(std::mt19937_64& random) {
  SafetensorsHeader header;
  std::uint64_t end = 0;
  const std::size_t count = random() % 6;
  for (std::size_t i = 0; i < count; ++i) {
    TensorInfo info;
    info.name = "layer." + std::to_string(i) + (random() % 2 == 0 ? ".weight" : "/\"\\ä\n");
    info.dtype = static_cast<Dtype>(random() % 10);
    std::uint64_t bytes = bytes_of(info.dtype);
    for (std::size_t rank = random() % 5; rank > 0; --rank) {
      info.shape.push_back(static_cast<std::int64_t>(random() % 4));
      bytes *= static_cast<std::uint64_t>(info.shape.back());
    }
    info.begin = end;
    end = info.end = end + bytes;
    header.tensors.push_back(info);
  }
  if (random() % 2 == 0) header.metadata["key"] = "value \" \u00e9";
  return header;
}

TEST(SafetensorsHeader, ReadsBackWhatItFormats) {
  const std::uint64_t seed = 20240611;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const SafetensorsHeader header = random_header(random);
    const std::string bytes = header.format();
    ASSERT_EQ(bytes.size() % 8, 0U);
    const std::uint64_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
    const auto back = SafetensorsHeader::parse(bytes.substr(8), data, "f");
    EXPECT_EQ(back.metadata, header.metadata);
    ASSERT_EQ(back.tensors.size(), header.tensors.size());
    for (const TensorInfo& info : header.tensors) {
      EXPECT_EQ(std::count(back.tensors.begin(), back.tensors.end(), info), 1) << info.name;
    }
  }
}

TEST(SafetensorsHeader, AcceptsNoMutantWhoseTensorsLeaveTheData) {
  const std::uint64_t seed = 7;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string alphabet = "{}[]\",:0123456789-.eF";
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    const SafetensorsHeader header = random_header(random);
    const std::uint64_t data = header.tensors.empty() ? 0 : header.tensors.back().end;
    std::string text = header.format().substr(8);
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      text[random() % text.size()] = alphabet[random() % alphabet.size()];
    }
    try {
      std::uint64_t covered = 0;
      for (const TensorInfo& info : SafetensorsHeader::parse(text, data, "f").tensors) {
        ASSERT_EQ(info.begin, covered) << text;
        covered = info.end;
      }
      ASSERT_EQ(covered, data) << text;
    } catch (const StoreError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace strait::store
