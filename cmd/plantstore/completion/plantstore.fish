function __plantstore_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l candidates ($words[1] complete -- $words[2..-1] 2>/dev/null)
  if test "$candidates[1]" = :files
    set -l lead (string match -r -- '^--[^=]*=' (commandline -ct))
    for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' (commandline -ct)))
      echo "$lead$path"
    end
  else
    printf '%s\n' $candidates
  end
end
complete -c plantstore -f -a '(__plantstore_complete)'
