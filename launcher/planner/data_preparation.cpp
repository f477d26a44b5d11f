#include "launcher/planner/data_preparation.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "framework/store/atomic_file.h"
#include "framework/store/byte_tokenizer.h"
#include "framework/store/packer.h"
#include "framework/store/record_reader.h"
#include "framework/store/store_error.h"

namespace strait::planner {
namespace {

store::TokenRows pack_records(const std::filesystem::path& source, std::int64_t row) {
  store::RecordReader reader(source);
  store::Packer packer(row);
  while (const std::optional<store::Record> record = reader.next()) {
    packer.add(store::ByteTokenizer::document(*record));
  }
  return packer.finish();
}

}  // namespace

PreparedData read_data(const std::filesystem::path& source, std::int64_t row) {
  PreparedData data;
  data.source = source;
  data.is_token_file = source.extension() == ".safetensors";
  if (!data.is_token_file) {
    data.tokens =
        std::make_shared<const tensors::TokenFile>(pack_records(source, row), source.string());
    return data;
  }
  data.tokens = std::make_shared<const tensors::TokenFile>(source);
  if (data.tokens->row_length() != row) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("{} has rows of {} tokens, but the recipe says data.row = {}; make them equal",
                    source.string(), data.tokens->row_length(), row));
  }
  return data;
}

std::filesystem::path place_data(const PreparedData& data, const std::filesystem::path& target) {
  if (data.is_token_file) return std::filesystem::absolute(data.source);
  store::make_directory(std::filesystem::absolute(target).parent_path());
  tensors::write_token_file(target, data.tokens->table(),
                            {{"source", data.source.string()}, {"tokenizer", "bytes"}});
  return std::filesystem::absolute(target);
}

}  // namespace strait::planner
