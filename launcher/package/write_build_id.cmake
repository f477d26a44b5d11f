# Writes OUT, the source of build_id(): VERSION and a hash over the files named in LIST.
file(STRINGS ${LIST} files)
set(all "")
foreach(file IN LISTS files)
  file(SHA256 ${file} hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 12 id)
file(WRITE ${OUT} "#include \"launcher/base/own_program.h\"\n\nnamespace strait::base {\n
const char* build_id() { return \"${VERSION}-${id}\"; }\n\n}  // namespace strait::base\n")
