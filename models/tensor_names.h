#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/error.h"
#include "models/families.h"
#include "models/lora.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// The tensors of a file are not those of the model. The message lists every missing, surplus and
// misshapen tensor.
class TensorMismatch : public InputError {
 public:
  using InputError::InputError;
};

// The family's names. `carried` has those of this model's prediction blocks, too.
FileNames file_names(const ModelConfig& config);

// Maps the model's tensor names to names in a file (all shards together). Knows the spellings in
// files of the hub: missing prefixes, buffers that are not weights, and a tied projection that is
// stored twice, once, or only as the head, and experts in one tensor (rows_in_file). `where`: the
// file's name in errors.
std::map<std::string, std::string> match_tensors(const ModelConfig& config,
                                                 const std::vector<TensorShape>& in_file,
                                                 const std::string& where);

// A file may have the experts of a block in one tensor, [experts, rows, width], with gate and up as
// one. match_tensors() names it for each of them.
struct FileRows {
  std::int64_t first = 0;  // of all rows of the experts in sequence
  std::int64_t count = 0;
  bool vector = false;  // the one row is a vector
  // Not empty: the rows are blocks of MXFP4, whose scales are rows of this tensor.
  std::string scales{};
  std::int64_t first_scale = 0;
  std::int64_t scale_count = 0;
};
// The part of the file's tensor that is the model's tensor `name`. Nullopt: all of it.
std::optional<FileRows> rows_in_file(const std::string& name, const TensorShape& in_file);

// A tensor of the files that an export writes.
struct FileTensor {
  std::string name;  // empty: that in the source's files
  std::vector<std::int64_t> shape;
  std::vector<std::string> parts;  // the model's tensors that it consists of, stacked if several
};
std::vector<FileTensor> tensors_to_export(const ModelConfig& config);

// The names in the file of a tied model's table and projection if both are stored; else empty.
// match_tensors() takes the table.
struct StoredTwice {
  std::string table;
  std::string projection;
};
std::optional<StoredTwice> tied_stored_twice(const ModelConfig& config,
                                             const std::vector<TensorShape>& in_file);

// The tensors of PEFT's adapter_model.safetensors: all that are trained. The adapters of a tensor
// of all experts are one, of whose parts the lower are one above the other, [experts · rank, in],
// and the upper are interleaved by columns, [out, rank · experts].
std::vector<FileTensor> adapter_files(const ModelConfig& config);

// Maps the model's names of trained tensors to where they are in such a file.
struct AdapterTensor {
  std::string in_file;
  std::int64_t part = 0;
  std::int64_t parts = 1;
};
std::map<std::string, AdapterTensor> match_adapter_tensors(const ModelConfig& config,
                                                           const std::vector<TensorShape>& in_file,
                                                           const std::string& where);

}  // namespace strait::models
