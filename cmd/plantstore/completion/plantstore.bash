_plantstore() {
  local line words full done
  read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ "${COMP_LINE:0:COMP_POINT}" == *[[:space:]] ]] && words+=("")
  full="${words[${#words[@]} - 1]}"
  done="${full%"${full##*[:=]}"}"
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ "$line" == :files ]]; then
      compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "${full#"$done"}"))
    else
      COMPREPLY+=("${line#"$done"}")
    fi
  done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
}
complete -F _plantstore plantstore
