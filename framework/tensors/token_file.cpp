#include "framework/tensors/token_file.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_reader.h"
#include "framework/tensors/safetensors_writer.h"

namespace strait::tensors {
namespace {

[[noreturn]] void refuse_tokens(const std::string& name, const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, name + ": " + why);
}

template <typename T>
std::vector<T> read_table(const SafetensorsReader& reader, const std::string& tensor,
                          store::Dtype dtype, const std::vector<std::int64_t>& shape) {
  const store::TensorInfo& info = reader.info(tensor);
  if (info.dtype != dtype || info.shape != shape) {
    store::TensorInfo wanted = info;
    wanted.dtype = dtype;
    wanted.shape = shape;
    refuse_tokens(reader.path().string(),
                  fmt::format("tensor \"{}\" is {}, expected {}", tensor, store::describe(info),
                              store::describe(wanted)));
  }
  std::vector<T> values(info.bytes() / sizeof(T));
  reader.read(info, std::as_writable_bytes(std::span(values)));
  return values;
}

store::TokenRows read_rows(const SafetensorsReader& reader) {
  const std::string name = reader.path().string();
  if (reader.find("input_ids") == nullptr) {
    refuse_tokens(name, "it is not a token file: there is no tensor \"input_ids\"");
  }
  const std::vector<std::int64_t> shape = reader.info("input_ids").shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 2) {
    refuse_tokens(name, fmt::format("tensor \"input_ids\" is {}, expected I32 [rows, row] with at "
                                    "least one row of at least two tokens",
                                    store::describe(reader.info("input_ids"))));
  }
  store::TokenRows rows;
  rows.row_length = shape[1];
  rows.input_ids = read_table<std::int32_t>(reader, "input_ids", store::Dtype::i32, shape);
  if (reader.find("loss_mask") != nullptr) {
    rows.loss_mask = read_table<std::uint8_t>(reader, "loss_mask", store::Dtype::u8, shape);
  } else {
    rows.loss_mask.assign(rows.input_ids.size(), 1);
  }
  if (reader.find("document") != nullptr) {
    rows.document = read_table<std::int32_t>(reader, "document", store::Dtype::i32, shape);
  } else {
    rows.document.assign(rows.input_ids.size(), 0);
  }
  return rows;
}

// The first thing wrong with a row, or nothing.
std::string fault_of_row(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask,
                         std::span<const std::int32_t> documents) {
  std::int32_t before = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0) return fmt::format("token {} at place {} is negative", tokens[t], t);
    if (mask[t] > 1) return fmt::format("loss_mask {} at place {} is neither 0 nor 1", mask[t], t);
    const std::int32_t document = documents[t];
    if (document < -1) return fmt::format("document {} at place {} is below -1", document, t);
    if (before == -1 && document != -1) {
      return fmt::format("document {} at place {} follows padding (-1)", document, t);
    }
    if (document != -1 && document < before) {
      return fmt::format("document {} at place {} follows document {}: numbers must not fall",
                         document, t, before);
    }
    if (t == 0 && document == -1) return "it holds nothing but padding";
    before = document;
  }
  return {};
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  rows_ = read_rows(reader);
  metadata_ = reader.metadata();
  validate(path.string());
}

TokenFile::TokenFile(store::TokenRows rows, const std::string& name) : rows_(std::move(rows)) {
  const auto expected = static_cast<std::size_t>(rows_.rows() * rows_.row_length);
  if (rows_.rows() < 1 || rows_.row_length < 2 || rows_.input_ids.size() != expected ||
      rows_.loss_mask.size() != expected || rows_.document.size() != expected) {
    refuse_tokens(name, fmt::format("{} tokens, {} masks and {} document numbers are no rows of {}",
                                    rows_.input_ids.size(), rows_.loss_mask.size(),
                                    rows_.document.size(), rows_.row_length));
  }
  validate(name);
}

void TokenFile::validate(const std::string& name) {
  for (std::int64_t row = 0; row < rows(); ++row) {
    const store::SampleId sample{row};
    const std::string fault = fault_of_row(tokens(sample), loss_mask(sample), documents(sample));
    if (!fault.empty()) refuse_tokens(name, fmt::format("row {}: {}", row, fault));
  }
  largest_token_ = *std::max_element(rows_.input_ids.begin(), rows_.input_ids.end());
  store::FileHash hash;
  hash.update(std::as_bytes(std::span(&rows_.row_length, 1)));
  hash.update(std::as_bytes(std::span(rows_.input_ids)));
  hash.update(std::as_bytes(std::span(rows_.loss_mask)));
  hash.update(std::as_bytes(std::span(rows_.document)));
  hash_ = hash.hex();
}

std::size_t TokenFile::start(store::SampleId sample) const {
  if (number(sample) < 0 || number(sample) >= rows()) {
    throw std::out_of_range(fmt::format("sample {} of {} rows", number(sample), rows()));
  }
  return static_cast<std::size_t>(number(sample) * row_length());
}

std::span<const std::int32_t> TokenFile::tokens(store::SampleId sample) const {
  return std::span(rows_.input_ids).subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::span<const std::uint8_t> TokenFile::loss_mask(store::SampleId sample) const {
  return std::span(rows_.loss_mask).subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::span<const std::int32_t> TokenFile::documents(store::SampleId sample) const {
  return std::span(rows_.document).subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::int64_t TokenFile::length(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  return std::find(numbers.begin(), numbers.end(), -1) - numbers.begin();
}

std::vector<std::int64_t> TokenFile::document_lengths(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  std::vector<std::int64_t> lengths;
  for (std::size_t t = 0; t < numbers.size() && numbers[t] != -1; ++t) {
    if (t == 0 || numbers[t] != numbers[t - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

std::int64_t TokenFile::targets(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  const std::span<const std::uint8_t> mask = loss_mask(sample);
  std::int64_t count = 0;
  for (std::size_t t = 1; t < numbers.size() && numbers[t] != -1; ++t) {
    if (mask[t] == 1 && numbers[t] == numbers[t - 1]) ++count;
  }
  return count;
}

store::FileSummary write_token_file(const std::filesystem::path& path, const store::TokenRows& rows,
                                    const std::map<std::string, std::string>& metadata) {
  const auto table = [&rows](auto& values, at::ScalarType type) {
    // from_blob takes a mutable pointer; the tensor is only read.
    return at::from_blob(const_cast<void*>(static_cast<const void*>(values.data())),
                         {rows.rows(), rows.row_length}, at::TensorOptions(type));
  };
  const std::vector<NamedTensor> tensors{{"input_ids", table(rows.input_ids, at::kInt)},
                                         {"loss_mask", table(rows.loss_mask, at::kByte)},
                                         {"document", table(rows.document, at::kInt)}};
  return write_safetensors(path, tensors, metadata);
}

}  // namespace strait::tensors
