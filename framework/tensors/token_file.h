#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/store/file_hash.h"
#include "framework/store/sample.h"
#include "framework/store/token_rows.h"

namespace strait::tensors {

// Packed training rows, loaded whole and checked. The file is safetensors, and anyone may write
// one:
//   input_ids  int32 [rows, row]   the tokens, 0 or more each
//   loss_mask  uint8 [rows, row]   optional: 1 where the token is a target; absent: everywhere
//   document   int32 [rows, row]   optional: attention and positions do not cross document numbers;
//                                  0 or more and never falling in a row, then -1 for the padding at
//                                  the row's end. Absent: each row is one document without padding.
// A row that is all padding is refused. Immutable: any thread may read.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  TokenFile(store::TokenRows rows, const std::string& name);  // the same checks for rows in memory

  std::int64_t rows() const { return rows_.rows(); }
  std::int64_t row_length() const { return rows_.row_length; }
  std::int32_t largest_token() const { return largest_token_; }
  const std::string& hash() const { return hash_; }  // of the content, however it was written
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const store::TokenRows& table() const { return rows_; }

  std::span<const std::int32_t> tokens(store::SampleId sample) const;
  std::span<const std::uint8_t> loss_mask(store::SampleId sample) const;
  std::span<const std::int32_t> documents(store::SampleId sample) const;

  std::int64_t length(store::SampleId sample) const;  // without the padding
  std::vector<std::int64_t> document_lengths(
      store::SampleId sample) const;  // their sum is length()

  // How many tokens of the row count in the loss: masked in, not padding, and not the first of
  // their document, because nothing stands before that one.
  std::int64_t targets(store::SampleId sample) const;

 private:
  void validate(const std::string& name);
  std::size_t start(store::SampleId sample) const;

  store::TokenRows rows_;
  std::int32_t largest_token_ = 0;
  std::string hash_;
  std::map<std::string, std::string> metadata_;
};

store::FileSummary write_token_file(const std::filesystem::path& path, const store::TokenRows& rows,
                                    const std::map<std::string, std::string>& metadata = {});

}  // namespace strait::tensors
