#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/catalogue.h"
#include "models/config_reader.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::models {

// How the values of a new tensor are drawn.
struct Initialization {
  double mean = 0;
  double deviation = 0;        // zero: all values are the mean
  std::int64_t zero_row = -1;  // of a table: this row is zero; -1: none
  // Above zero: the logarithms of values that are evenly distributed between these.
  double log_lowest = 0;
  double log_highest = 0;
};

// How PEFT over transformers 5 finds adapters of experts' matrices. The library has one tensor for
// all experts of a block where the files have many.
enum class PeftExperts {
  as_named,       // there are none, or target_parameters names their tensors here, too
  by_last_parts,  // it takes every target with the last part of their names for these tensors
  by_parameters,  // only target_parameters names these tensors
};

// Tensor names in a family's files that differ from Model::parameters().
struct FileNames {
  // The name of a tied projection in files that store it separately, and the tensor that it is tied
  // to.
  std::string head;
  std::string embedding;
  // Files of the model without its head lack `prefix` before names that start with one of these.
  std::string prefix;
  std::vector<std::string> parts;
  // Of a larger model that this is the text part of: how names begin in its files, and here. Names
  // of its other tensors begin with one of `carried`: an export has them as they were.
  std::vector<std::pair<std::string, std::string>> inside;
  std::vector<std::string> carried;
  std::string module;  // the library has this in place of `prefix`; empty: the same
  // the library's name of one part of names, in place of the first
  std::pair<std::string, std::string> renamed;
  PeftExperts peft_experts = PeftExperts::as_named;
  // of experts with matrices of their own: gate, up and down
  std::vector<std::string> expert_parts = {"gate_proj", "up_proj", "down_proj"};
  bool joins_experts = false;        // exported files have the experts of a block in one tensor
  bool reads_mxfp4 = false;          // files may have them as blocks of four bits
  std::vector<std::string> ignored;  // endings of tensors that are not weights
  // from the library's name of a tensor to the name here
  std::map<std::string, std::string> aliases;
};

bool is_carried(const FileNames& names, const std::string& in_file);

// The name in Model::parameters() of a file's tensor. Nullopt: the tensor is not the model's.
std::optional<std::string> canonical_name(const FileNames& names, const std::string& in_file);

// The name here of what the library calls so today, and the reverse.
std::string own_name(const FileNames& names, const std::string& in_library);
std::string name_in_library(const FileNames& names, const std::string& own);

// Everything that is specific to a family of models. To add a family, write these functions in a
// new file (decoder.h does most of it for usual decoders) and list it in families(), or offer it in
// a plugin. Models have an embedding, blocks and a head, in this order; see LayerRange.
struct Family {
  std::string name;                                          // model_type in config.json
  std::function<std::any(const ConfigReader& reader)> read;  // ModelConfig::values
  // Costs only: describe() fills in tensors and parameters from the layers that `make` makes.
  ModelDescription (*describe)(const ModelConfig& config, const CostQuestion& question) = nullptr;
  std::unique_ptr<Model> (*make)(const ModelConfig& config, LayerRange range, at::ScalarType type,
                                 at::Device device) = nullptr;
  Initialization (*initialization)(const ModelConfig& config, const std::string& tensor) = nullptr;
  FileNames names;
  bool input_first = false;          // matrices of the blocks are stored as [in, out]
  bool experts_input_first = false;  // and of the experts
  // Whether training forwards of these layers, while frozen, give a row the same values at every
  // visit, in any micro-batch: no dropout, and no experts, whose matrices multiply as many rows as
  // the router sends them. Null: no.
  bool (*repeats)(const ModelConfig& config, LayerRange range) = nullptr;
};

// The families of this library. Each is in the file with its name, or in that of its parent.
Family deepseek_v3_family();
Family gemma2_family();
Family gemma3_family();
Family gpt2_family();
Family gpt_oss_family();
Family gpt_neox_family();
Family gptj_family();
Family glm4_moe_lite_family();
Family granite_family();
Family llama_family();
Family ministral3_family();
Family mistral_family();
Family mistral3_family();  // text and vision
Family mistral4_family();
Family mixtral_family();
Family olmo3_family();
Family olmoe_family();
Family opt_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_5_family();  // text and vision
Family qwen3_5_text_family();
Family qwen3_5_moe_family();  // text and vision
Family qwen3_5_moe_text_family();
Family qwen3_moe_family();
Family smollm3_family();

Catalogue<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace strait::models
